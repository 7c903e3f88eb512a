package export

import "slices"

// An elementType is how the values of an array are stored.
type elementType struct {
	name string
	bits int // 0: a value that has no bytes of its own, or whose size the program decides
}

// elementTypes are the types of the form of JAX, in the order of their numbers (C-EXP-14).
var elementTypes = []elementType{
	{"bool", 8}, {"i8", 8}, {"i16", 16}, {"i32", 32}, {"i64", 64},
	{"ui8", 8}, {"ui16", 16}, {"ui32", 32}, {"ui64", 64},
	{"f16", 16}, {"f32", 32}, {"f64", 64}, {"c64", 64}, {"c128", 128}, {"bf16", 16},
	{"i4", 4}, {"ui4", 4},
	{"f8_e4m3b11fnuz", 8}, {"f8_e4m3fn", 8}, {"f8_e4m3fnuz", 8}, {"f8_e5m2", 8}, {"f8_e5m2fnuz", 8},
	{"f0", 0}, {"f8_e4m3", 8}, {"f8_e3m4", 8}, {"f8_e8m0fnu", 8}, {"f4_e2m1fn", 4},
	{"key_fry", 0}, {"key_rbg", 0}, {"key_unsafe_rbg", 0},
}

// typeNumber is the number of a type in the form of JAX, or -1.
func typeNumber(name string) int {
	return slices.IndexFunc(elementTypes, func(t elementType) bool { return t.name == name })
}

func knownType(name string) bool { return typeNumber(name) >= 0 }

// elementBytes is the size of one element in a file, or 0 where it has none or is no whole byte.
func elementBytes(name string) int {
	if n := typeNumber(name); n >= 0 && elementTypes[n].bits%8 == 0 {
		return elementTypes[n].bits / 8
	}
	return 0
}

// The memory spaces of a value.
const (
	memoryDevice = "device"
	memoryHost   = "host"
	memoryAny    = "any"
)

// memorySpaces are in the order of their numbers in the form of JAX; a missing one reads as device.
var memorySpaces = []string{memoryDevice, memoryDevice, memoryHost, memoryAny}
