// Package lua holds the scripts that run inside Redis.
package lua

import (
	_ "embed"
	"fmt"
	"strings"
)

var (
	//go:embed state.lua
	state string
	//go:embed token_bucket.lua
	tokenBucket string
	//go:embed decide.lua
	decide string
	//go:embed heartbeat.lua
	heartbeat string
)

// Decide returns the script that decides a batch of requests, assembled from the algorithms. An
// algorithm is made on its first use in a call, since Redis runs the whole text every time.
func Decide() string {
	algorithms := []struct {
		number int // limit.Algorithm
		text   string
	}{
		{1, tokenBucket},
	}
	var b strings.Builder
	b.WriteString(state)
	b.WriteString("\nlocal makers = {}\n")
	for _, a := range algorithms {
		fmt.Fprintf(&b, "makers[%d] = function()\n%s\nend\n", a.number, a.text)
	}
	b.WriteString(decide)
	return b.String()
}

// Heartbeat returns the script that keeps and counts the living nodes of each limit.
func Heartbeat() string { return heartbeat }
