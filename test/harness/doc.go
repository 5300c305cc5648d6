// Package harness is what tests against real clusters are made of: the clusters that the environment names, what
// happened in them in order, curl and shoalctl as users call them, and the logs that prove or disprove a claim.
//
// Nothing here knows a test's story. Functions that take a *testing.T fail the test with what they were told or saw;
// the others return errors. Nothing sleeps for a fixed time: what takes time is asked again until a deadline, and the
// failure says what was last seen.
package harness
