package mesh

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// printers say how to print the elements of a block, which are little-endian.
var printers = map[Element]func([]byte) []string{
	{"bool", 1}: printed[bool], {"float32", 4}: printed[float32], {"float64", 8}: printed[float64],
	{"int8", 1}: printed[int8], {"int16", 2}: printed[int16], {"int32", 4}: printed[int32], {"int64", 8}: printed[int64],
	{"uint8", 1}: printed[uint8], {"uint16", 2}: printed[uint16], {"uint32", 4}: printed[uint32], {"uint64", 8}: printed[uint64],
	{"bfloat16", 2}: func(data []byte) []string { // the upper half of a float32
		var wide []byte
		for half := range slices.Chunk(data, 2) {
			wide = append(wide, 0, 0, half[0], half[1])
		}
		return printed[float32](wide)
	},
}

func printed[T any](data []byte) []string {
	var zero T
	list := make([]T, len(data)/binary.Size(zero))
	if _, err := binary.Decode(data, binary.LittleEndian, list); err != nil {
		panic(fmt.Sprintf("mesh: print %d bytes as %T: %v", len(data), zero, err))
	}
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = fmt.Sprint(v)
	}
	return out
}
