package main

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
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

// digest is a number for all bits of the model.
func (m *model) digest() uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, m.weights[:])
	return h.Sum64()
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

// A contribution is what a worker adds to the sum of a step: the gradient, the loss, and whether it knows of workers that
// have come back.
type contribution [weights + 2]float32

func (c *contribution) returned()         { c[weights+1] = 1 }
func (c *contribution) hasReturned() bool { return c[weights+1] > 0 }

// gradient is where the mean loss over the points rises, and that loss.
func (m *model) gradient(points []point) (c contribution) {
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
		c[i] = float32(g[i] / n)
	}
	c[weights] = float32(sum / n)
	return c
}

// update makes the step that the sum of some contributions asks for, and returns their mean loss.
func (m *model) update(sum contribution, of int) (loss float32) {
	for i := range m.weights {
		m.weights[i] -= rate * sum[i] / float32(of)
	}
	return sum[weights] / float32(of)
}
