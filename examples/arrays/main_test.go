package main

import (
	"bytes"
	"os"
	"testing"
)

// TestOutput runs the example and compares what it prints with output.txt, which
// docs/ARRAYS.md shows.
func TestOutput(t *testing.T) {
	var got bytes.Buffer
	if err := run(&got); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("output.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("run printed\n%s\nwant output.txt:\n%s", got.Bytes(), want)
	}
}
