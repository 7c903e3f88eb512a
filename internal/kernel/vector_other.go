//go:build !amd64

package kernel

import "github.com/serry-dev/serry/memory"

// accelerated is empty: portable Go is all that there is for this processor.
var accelerated map[memory.DType]vectors
