package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/tidegate/tidegate/internal/limit"
)

// readSecret returns what the file holds, without the white space around it. A file of fewer than
// 16 bytes is refused.
func readSecret(file string) (limit.Secret, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tickets.secret_file: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < limit.MinSecret {
		return nil, fmt.Errorf("tickets.secret_file: %s holds %d bytes; a secret has at least %d", file, len(secret), limit.MinSecret)
	}
	return limit.Secret(secret), nil
}
