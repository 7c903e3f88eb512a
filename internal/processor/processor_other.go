//go:build !amd64

package processor

const hasNumber, isSteady = false, false

func number() uint32 { return 0 }

func ticks() int64 { return 0 }
