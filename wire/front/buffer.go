package front

import "github.com/serry-dev/serry/wire/internal/socket"

// Names of package socket that are used all over this one.
const (
	smallBuffer = socket.Small
	largeBuffer = socket.Large
)

func grow(b []byte, n int) []byte { return socket.Grow(b, n) }
func recycle(b []byte)            { socket.Recycle(b) }
