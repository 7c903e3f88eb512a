package pystack

import (
	"path/filepath"
	"testing"
)

// BenchmarkRead has what finding a Python costs, once for each process, and what reading its stacks costs.
func BenchmarkRead(b *testing.B) {
	for name, python := range pythons(b) {
		c := start(b, python, filepath.Join("testdata", "parked.py"))
		for stacks := c.ask(b); len(stacks) < 6; {
			stacks = c.ask(b)
		}
		b.Run("open/python="+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Open(c.pid()); err != nil {
					b.Fatal(err)
				}
			}
		})
		p, err := Open(c.pid())
		if err != nil {
			b.Fatal(err)
		}
		b.Run("read/python="+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
