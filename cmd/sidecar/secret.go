package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/tidegate/tidegate/internal/limit"
)

// The lengths of a secret in bytes: the least that a file may hold, and what is made up without.
const (
	minSecret = 16
	ownSecret = 32
)

// readSecret returns what the file holds, without the white space around it. A file of fewer than
// 16 bytes is refused.
func readSecret(file string) (limit.Secret, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tickets.secret_file: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < minSecret {
		return nil, fmt.Errorf("tickets.secret_file: %s holds %d bytes; a secret has at least %d", file, len(secret), minSecret)
	}
	return limit.Secret(secret), nil
}

// newSecret makes up a secret that dies with this process.
func newSecret() limit.Secret {
	secret := make(limit.Secret, ownSecret)
	_, _ = rand.Read(secret) // it never fails: without randomness the process ends
	return secret
}
