package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Ctl runs shoalctl as a user of the hub does and returns what it printed.
func (e *Env) Ctl(ctx context.Context, args ...string) (string, error) {
	if len(e.ctl) == 0 {
		return "", errors.New("SHOAL_CTL is empty")
	}
	return Run(ctx, "", e.ctl[0], append(e.ctl[1:len(e.ctl):len(e.ctl)], args...)...)
}

// NewToken makes an API token for a crawler.
func (e *Env) NewToken(ctx context.Context, name string, fleets ...string) (string, error) {
	args := []string{"token", "create", "--name", name, "--output", "json"}
	for _, fleet := range fleets {
		args = append(args, "--fleet", fleet)
	}
	text, err := e.Ctl(ctx, args...)
	if err != nil {
		return "", err
	}
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Token == "" {
		return "", fmt.Errorf("shoalctl token create printed no token: %w", err)
	}
	return made.Token, nil
}

// NewJoinToken makes a join token for a member.
func (e *Env) NewJoinToken(ctx context.Context, member string, more ...string) (string, error) {
	args := append([]string{"member", "join-token", member, "--hub-url", e.AgentsURL, "--output", "json"}, more...)
	text, err := e.Ctl(ctx, args...)
	if err != nil {
		return "", err
	}
	var made []struct{ Token string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || len(made) != 1 || made[0].Token == "" {
		return "", fmt.Errorf("shoalctl member join-token printed no token: %w", err)
	}
	return made[0].Token, nil
}
