package report

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

const (
	width  = 24 * vg.Centimeter
	height = 14 * vg.Centimeter
)

// palette is told apart by people who do not see all colours (Okabe and Ito).
var palette = [...]color.RGBA{
	{120, 120, 120, 255}, {0, 158, 115, 255}, {86, 180, 233, 255}, {0, 114, 178, 255}, {213, 94, 0, 255}, {230, 159, 0, 255},
}

// Line is one contestant in the figures, at every number of connections that it was measured at. A colour
// belongs to its place among the lines.
type Line struct{ Name, Scenario, Contestant string }

// figure is one drawing: how each line's samples are drawn against the number of connections.
type figure struct {
	file, title, y string
	log            bool      // the y axis is logarithmic
	ticks          []float64 // of a logarithmic one
	field          func(Sample) float64
	dashed         func(Sample) float64 // a second line for each; nil: none
}

func figures() []figure {
	return []figure{
		{file: "throughput.svg", title: "Decisions a second: clients, server and Redis on the same cores", y: "decisions a second", field: PerSecond},
		{file: "latency.svg", title: "From a question to its answer: p50, and p99 dashed", y: "milliseconds", log: true,
			ticks: []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}, field: P50, dashed: P99},
		{file: "calls.svg", title: "Script calls to Redis per decision", y: "calls per decision", log: true,
			ticks: []float64{0.00001, 0.0001, 0.001, 0.01, 0.1, 1}, field: Calls},
		{file: "cpu.svg", title: "Processor time of the server per decision", y: "microseconds", log: true,
			ticks: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}, field: CPU},
	}
}

func figureNames() []string {
	var names []string
	for _, f := range figures() {
		names = append(names, f.file)
	}
	return names
}

// Figures draws every figure as SVG, by the names of their files. A line without samples is left out.
func Figures(lines []Line, results *Results) (map[string][]byte, error) {
	drawn := map[string][]byte{}
	for _, f := range figures() {
		svg, err := f.draw(lines, results)
		if err != nil {
			return nil, fmt.Errorf("report: draw %s: %w", f.file, err)
		}
		drawn[f.file] = svg
	}
	return drawn, nil
}

func (f figure) draw(lines []Line, results *Results) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, "connections", f.y
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks([]float64{1, 4, 16, 64, 256})
	p.X.Min, p.X.Max = 1, 256
	for i, line := range lines {
		if err := f.add(p, line.Name, line.points(results, f.field), palette[i%len(palette)], false); err != nil {
			return nil, err
		}
		if f.dashed == nil {
			continue
		}
		if err := f.add(p, "", line.points(results, f.dashed), palette[i%len(palette)], true); err != nil {
			return nil, err
		}
	}
	f.scale(p)
	writer, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return nil, err
	}
	var svg bytes.Buffer
	_, err = writer.WriteTo(&svg)
	return svg.Bytes(), err
}

// scale leaves room above the lines for the legend.
func (f figure) scale(p *plot.Plot) {
	if !f.log {
		p.Y.Min, p.Y.Max = 0, max(p.Y.Max, 1)*1.35
		return
	}
	if p.Y.Min <= 0 || p.Y.Min >= p.Y.Max { // nothing was drawn
		p.Y.Min, p.Y.Max = 0.1, 1
	}
	p.Y.Max *= 8
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticks(f.ticks)
}

// points returns what was measured of a line, by connections; what is 0 was not measured.
func (l Line) points(results *Results, field func(Sample) float64) plotter.XYs {
	var points plotter.XYs
	for _, p := range results.points {
		if p.Scenario != l.Scenario || p.Contestant != l.Contestant {
			continue
		}
		if y, err := results.Median(p, field); err == nil && y > 0 {
			points = append(points, plotter.XY{X: float64(p.Connections), Y: y})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}

func (f figure) add(p *plot.Plot, name string, points plotter.XYs, c color.RGBA, dashed bool) error {
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.6)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	p.Add(line)
	if name != "" {
		p.Legend.Add(name, line)
	}
	return nil
}

// ticks marks an axis at the given numbers.
func ticks(at []float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, n := range at {
		all = append(all, plot.Tick{Value: n, Label: strconv.FormatFloat(n, 'f', -1, 64)})
	}
	return all
}
