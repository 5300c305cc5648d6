package v1alpha1

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a length of time, written as in "1h30m" or "500ms".
//
// It is metav1.Duration with a schema that refuses what cannot be parsed.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
// +kubebuilder:validation:MaxLength=32
type Duration struct {
	time.Duration `json:"-"`
}

// UnmarshalJSON reads a duration written as a string.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("write a duration as a string such as \"10m\": %w", err)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("write a duration such as \"10m\" or \"1h30m\": %w", err)
	}
	d.Duration = parsed
	return nil
}

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}
