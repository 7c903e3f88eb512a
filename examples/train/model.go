package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/serry-dev/serry"
)

// A model is a network with two inputs, one hidden layer and one output.
type model struct{ weights [weights]float32 }

const (
	hidden  = 16
	weights = 4*hidden + 1 // two inputs, a bias and an output for each hidden unit; one bias
	rate    = 1.5
)

// newModel is the same in every worker.
func newModel() model {
	r := rand.New(rand.NewPCG(1, 2))
	var m model
	for i := range m.weights {
		m.weights[i] = float32(r.NormFloat64() * 0.7)
	}
	return m
}

// A point is a place in the plane and the class it belongs to.
type point struct {
	x, y  float64
	class float64
}

// share is a worker's part of the data: two half moons that lie in each other.
func share(worker, workers int) []point {
	r := rand.New(rand.NewPCG(7, 7))
	var mine []point
	for i := range 400 {
		angle := math.Pi * r.Float64()
		p := point{x: math.Cos(angle), y: math.Sin(angle) - 0.25}
		if i%2 == 1 {
			p = point{x: 1 - math.Cos(angle), y: 0.25 - math.Sin(angle), class: 1}
		}
		p.x += 0.1 * r.NormFloat64()
		p.y += 0.1 * r.NormFloat64()
		if i/2%workers == worker {
			mine = append(mine, p)
		}
	}
	return mine
}

// gradient returns the mean loss over the points and where it rises.
func (m *model) gradient(points []point) (loss float32, gradient [weights]float32) {
	var sum float64
	var g [weights]float64
	w := func(i int) float64 { return float64(m.weights[i]) }
	for _, p := range points {
		var a [hidden]float64
		out := w(weights - 1)
		for h := range hidden {
			a[h] = math.Tanh(w(4*h)*p.x + w(4*h+1)*p.y + w(4*h+2))
			out += w(4*h+3) * a[h]
		}
		guess := 1 / (1 + math.Exp(-out))
		sum -= p.class*math.Log(guess+1e-12) + (1-p.class)*math.Log(1-guess+1e-12)
		d := guess - p.class
		g[weights-1] += d
		for h := range hidden {
			g[4*h+3] += d * a[h]
			dh := d * w(4*h+3) * (1 - a[h]*a[h])
			g[4*h] += dh * p.x
			g[4*h+1] += dh * p.y
			g[4*h+2] += dh
		}
	}
	n := float64(len(points))
	for i := range g {
		gradient[i] = float32(g[i] / n)
	}
	return float32(sum / n), gradient
}

// update makes the step that all contributions together ask for, and returns their mean loss.
func (m *model) update(made []contribution) float64 {
	var loss float64
	for _, c := range made {
		loss += float64(c.Loss) / float64(len(made))
		for i, g := range c.Gradient {
			m.weights[i] -= rate * g / float32(len(made))
		}
	}
	return loss
}

func (m *model) bytes() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, m.weights) // cannot fail for numbers
	return b
}

func (m *model) read(b []byte) error {
	return binary.Read(bytes.NewReader(b), binary.LittleEndian, &m.weights)
}

// A contribution is what a worker hands to all others in a step.
type contribution struct {
	handedIn
	from serry.TaskID
}

type handedIn struct {
	Step     int32 // -1: it has just come
	Loss     float32
	Gradient [weights]float32
}

func (h *handedIn) bytes() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, h) // cannot fail for numbers
	return b
}

func (h *handedIn) read(b []byte) error {
	return binary.Read(bytes.NewReader(b), binary.LittleEndian, h)
}
