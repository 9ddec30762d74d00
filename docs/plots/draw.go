package main

import (
	"bytes"
	"image/color"
	"math"
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
	{0, 114, 178, 255}, {230, 159, 0, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {86, 180, 233, 255},
}

var grey = color.RGBA{120, 120, 120, 255}

// drawAdmitted draws how many requests had passed by each time.
func drawAdmitted(asked []int64, runs []admitted) (*bytes.Buffer, error) {
	p := newPlot("One minute of bursty traffic: what each algorithm admits", "seconds", "requests admitted so far")
	if err := addLine(p, "asked, a fifth of it", countSteps(asked, 0.2), grey, true); err != nil {
		return nil, err
	}
	for i, r := range runs {
		if err := addLine(p, r.name, countSteps(r.times, 1), palette[i], r.dashed); err != nil {
			return nil, err
		}
	}
	p.X.Min, p.X.Max, p.Y.Min = 0, span/second, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(0, 10, 20, 30, 40, 50, 60), ticks(0, 100, 200, 300, 400, 500, 600)
	return render(p)
}

// drawBursts draws the most requests that passed in any span of each length.
func drawBursts(_ []int64, runs []admitted) (*bytes.Buffer, error) {
	p := newPlot("The worst burst: most requests admitted in any span of time", "length of the span, seconds", "requests")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(0.01, 0.1, 1, 10, 60), ticks(1, 2, 5, 10, 20, 50, 100, 200, 500)
	bound := plotter.XYs{{X: 0.01, Y: 100}, {X: window / second, Y: 100}}
	if err := addLine(p, "100 in 10s", bound, grey, true); err != nil {
		return nil, err
	}
	for i, r := range runs {
		var line plotter.XYs
		for length := 0.01; length <= span/second; length *= 1.05 {
			line = append(line, plotter.XY{X: length, Y: float64(worst(r.times, int64(length*second)))})
		}
		if err := addLine(p, r.name, line, palette[i], r.dashed); err != nil {
			return nil, err
		}
	}
	p.X.Min, p.X.Max, p.Y.Min = 0.01, span/second, 1
	return render(p)
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	return p
}

// ticks marks an axis at the given numbers.
func ticks(at ...float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, n := range at {
		all = append(all, plot.Tick{Value: n, Label: strconv.FormatFloat(n, 'f', -1, 64)})
	}
	return all
}

// countSteps returns how many of times have passed by each of them, scaled.
func countSteps(times []int64, scale float64) plotter.XYs {
	line := plotter.XYs{{X: 0, Y: 0}}
	for i, t := range times {
		x := float64(t) / second
		line = append(line, plotter.XY{X: x, Y: math.Round(float64(i) * scale)}, plotter.XY{X: x, Y: math.Round(float64(i+1) * scale)})
	}
	return append(line, plotter.XY{X: span / second, Y: line[len(line)-1].Y})
}

func addLine(p *plot.Plot, name string, points plotter.XYs, c color.RGBA, dashed bool) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.6)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}

func render(p *plot.Plot) (*bytes.Buffer, error) {
	writer, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return nil, err
	}
	var svg bytes.Buffer
	_, err = writer.WriteTo(&svg)
	return &svg, err
}
