package transfer_test

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// A buffer is handed to a reader before its content is there.
func ExamplePool() {
	pool := new(transfer.Pool)
	weights := []float32{0, 0}
	b, _ := pool.Buffer(
		transfer.Spec{Type: memory.F32, Dims: []int64{2}},
		transfer.Memory{Region: memory.OfSlice(weights)},
	)
	written, definition := pool.Event()
	b.Define(definition)

	b.Definition().After(func(err error) { fmt.Println(b.Spec(), weights, err) })

	weights[0], weights[1] = 1, 2
	written.Set(nil)
	b.Definition().Wait(context.Background())
	pool.Flush()
	b.Delete()
	// Output: f32[2] [1 2] <nil>
}
