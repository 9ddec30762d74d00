// Command plots draws the figures of docs/choosing.md from the arithmetic that the sidecar decides
// with: go run ./docs/plots (or make plots) writes them beside this file.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("docs/plots"); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// run writes every figure into dir.
func run(dir string) error {
	figures, err := draw()
	if err != nil {
		return err
	}
	for name, svg := range figures {
		if err := os.WriteFile(filepath.Join(dir, name), svg, 0o644); err != nil {
			return fmt.Errorf("plots: write: %w", err)
		}
	}
	return nil
}

// draw returns the figures by the names of their files.
func draw() (map[string][]byte, error) {
	contestants, err := contestants()
	if err != nil {
		return nil, err
	}
	asked := trace()
	var runs []admitted
	for _, c := range contestants {
		runs = append(runs, c.replay(asked))
	}
	figures := map[string][]byte{}
	for name, figure := range map[string]func([]int64, []admitted) (*bytes.Buffer, error){
		"admitted.svg": drawAdmitted,
		"bursts.svg":   drawBursts,
	} {
		svg, err := figure(asked, runs)
		if err != nil {
			return nil, fmt.Errorf("plots: draw %s: %w", name, err)
		}
		figures[name] = svg.Bytes()
	}
	return figures, nil
}
