package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// readJoinToken reads the join token. Without a file there is none, and no error: the agent may have registered long
// ago, when it needs none.
func readJoinToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--join-token-file: %w; this agent has not registered yet, and needs the token that `shoalctl member join-token` prints", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", errors.New("--join-token-file: " + file + " is empty; write the token that `shoalctl member join-token` prints")
	}
	return token, nil
}
