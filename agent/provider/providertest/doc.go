// Package providertest is the suite that every provider passes: what package provider says in prose, as tests.
package providertest
