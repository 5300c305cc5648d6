package access

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// forUs looks into a token without believing it: whether it is a JWT at all, is meant for us and has not ended. What is
// refused here the API server would refuse as well; what it says of its end is believed once the API server has found
// the token good.
func forUs(token string, now time.Time) (expires time.Time, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errors.New("it is neither an API token (shoal_…) nor a ServiceAccount token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, errors.New("it looks like a ServiceAccount token, but is none")
	}
	var claims struct {
		Audience audience `json:"aud"`
		Expires  float64  `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return time.Time{}, errors.New("it looks like a ServiceAccount token, but its claims cannot be read")
	}
	for _, meant := range claims.Audience {
		if meant != Audience {
			continue
		}
		// A token without an end is a legacy one; those have no audience of ours.
		expires = time.Unix(int64(claims.Expires), 0)
		if !now.Before(expires) {
			return time.Time{}, fmt.Errorf("it ended at %s", expires.UTC().Format(time.RFC3339))
		}
		return expires, nil
	}
	return time.Time{}, fmt.Errorf("it is a token for another audience; project one with audience %s", Audience)
}

// audience is a string or a list of them.
type audience []string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}
