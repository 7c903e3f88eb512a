//go:build !amd64

package crc32c

const canFold = false

func fold(*[blockBytes]byte, uint32, *byte, int, *[4]uint64) { panic("crc32c: no fold") }
