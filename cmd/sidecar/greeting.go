package main

import (
	"fmt"
	"strings"
)

// greeting tells who serves the built-in example what to paste. The example's limit demo lets a
// user pass twice, so the third of the same lines is denied.
func (s *sidecar) greeting() string {
	api := "http://" + s.api.Addrs()[0].String()
	line := fmt.Sprintf("  curl -si %s/v1/check -d '{\"limit\": \"demo\", \"key\": \"ada\"}'; echo\n", api)
	return fmt.Sprintf(`
Tidegate %s serves its built-in example and counts in this process alone.

  decisions  %s
  admin      http://%s    /metrics /readyz /version

The limit "demo" lets every user pass twice, and again every 30 seconds. Paste this: 200, 200, 429.

%s
Ctrl-C stops it. Your own limits: sidecar serve --config FILE

`, s.build.Version, api, s.admin.Addr(), strings.Repeat(line, 3))
}
