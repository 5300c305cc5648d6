// Package settings reads what the owner of a cluster writes for the agent: the configuration file, and the file of the
// regions of a cloud that the agent serves beside it. No hub can change either.
//
// Files are read strictly: what is not known, not of the right kind or written twice is refused, like what cannot be
// meant. Every mistake of a file is told at once, with its line, its field and what to write instead, and of a file with
// mistakes nothing is used.
package settings
