package computeclient

import (
	"fmt"
	"regexp"
)

// These patterns are what Compute Engine accepts. The client sends any name but "." and "..", so that "../x" would be
// another resource.
var (
	projectPattern  = regexp.MustCompile(`^([a-z0-9][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$`)
	resourcePattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// operations carry the time and two hashes in their name, and may be longer than resources.
	operationPattern = regexp.MustCompile(`^[a-z][-a-z0-9]{0,126}$`)
	labelKeyPattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelPattern     = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
)

// NameError says that a name cannot be one of Compute Engine's. No call was made.
type NameError struct {
	// What is what it should have been the name of: "zone".
	What string
	// Name is the name.
	Name string
}

// Error says so.
func (e *NameError) Error() string {
	return fmt.Sprintf("%q is no name of a %s in Compute Engine", e.Name, e.What)
}

// ValidProject says whether a project's ID can be one.
func ValidProject(id string) bool { return projectPattern.MatchString(id) }

// ValidName says whether a resource's name can be one: of an instance, an address, a zone, a region.
func ValidName(name string) bool { return resourcePattern.MatchString(name) }

// ValidLabel says whether a label can be one.
func ValidLabel(key, value string) bool {
	return labelKeyPattern.MatchString(key) && labelPattern.MatchString(value)
}

// checkNames takes pairs of what and name.
func checkNames(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		pattern := resourcePattern
		switch pairs[i] {
		case "project":
			pattern = projectPattern
		case "operation":
			pattern = operationPattern
		}
		if !pattern.MatchString(pairs[i+1]) {
			return &NameError{What: pairs[i], Name: pairs[i+1]}
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	for key, value := range labels {
		if !labelKeyPattern.MatchString(key) {
			return &NameError{What: "label", Name: key}
		}
		if !labelPattern.MatchString(value) {
			return &NameError{What: "label's value (" + key + ")", Name: value}
		}
	}
	return nil
}
