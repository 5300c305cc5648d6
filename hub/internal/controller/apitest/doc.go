// Package apitest holds no code of its own: its tests put bad input to a real API server with the CRDs of hub and
// member, and check that it is refused with words that say what to write instead.
package apitest
