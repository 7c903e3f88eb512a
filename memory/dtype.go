package memory

import (
	"fmt"
	"math"
	"strconv"
)

// A DType is the type of the elements of an array. The numbers are those of XLA's PrimitiveType.
type DType int

// The types of elements. Names say kind and bits; those of floats with fewer than 16 bits add how many
// are exponent and mantissa, and which values they lack.
const (
	PRED          DType = 1
	S8            DType = 2
	S16           DType = 3
	S32           DType = 4
	S64           DType = 5
	U8            DType = 6
	U16           DType = 7
	U32           DType = 8
	U64           DType = 9
	F16           DType = 10
	F32           DType = 11
	F64           DType = 12
	C64           DType = 15
	BF16          DType = 16
	C128          DType = 18
	F8E5M2        DType = 19
	F8E4M3FN      DType = 20
	S4            DType = 21
	U4            DType = 22
	F8E4M3B11FNUZ DType = 23
	F8E5M2FNUZ    DType = 24
	F8E4M3FNUZ    DType = 25
	S2            DType = 26
	U2            DType = 27
	F8E4M3        DType = 28
	F8E3M4        DType = 29
	S1            DType = 30
	U1            DType = 31
	F4E2M1FN      DType = 32
	F8E8M0FNU     DType = 33
	F6E3M2FN      DType = 35
	F6E2M3FN      DType = 36
)

// dtypes has the name and the stored bits of each type, by its number. Other numbers have no name.
var dtypes = [...]struct {
	name string
	bits int
}{
	PRED: {"pred", 8},
	S8:   {"s8", 8}, S16: {"s16", 16}, S32: {"s32", 32}, S64: {"s64", 64},
	U8: {"u8", 8}, U16: {"u16", 16}, U32: {"u32", 32}, U64: {"u64", 64},
	F16: {"f16", 16}, F32: {"f32", 32}, F64: {"f64", 64}, BF16: {"bf16", 16},
	C64: {"c64", 64}, C128: {"c128", 128},
	F8E5M2: {"f8e5m2", 8}, F8E4M3FN: {"f8e4m3fn", 8}, F8E4M3B11FNUZ: {"f8e4m3b11fnuz", 8},
	F8E5M2FNUZ: {"f8e5m2fnuz", 8}, F8E4M3FNUZ: {"f8e4m3fnuz", 8}, F8E4M3: {"f8e4m3", 8},
	F8E3M4: {"f8e3m4", 8}, F8E8M0FNU: {"f8e8m0fnu", 8},
	S4: {"s4", 4}, U4: {"u4", 4}, S2: {"s2", 2}, U2: {"u2", 2}, S1: {"s1", 1}, U1: {"u1", 1},
	F4E2M1FN: {"f4e2m1fn", 4},
	F6E3M2FN: {"f6e3m2fn", 8}, F6E2M3FN: {"f6e2m3fn", 8}, // six bits of each byte
}

// ParseDType finds a type by its name, such as "bf16".
func ParseDType(name string) (DType, error) {
	for number, t := range dtypes {
		if t.name == name && name != "" {
			return DType(number), nil
		}
	}
	return 0, fmt.Errorf("element type %q is unknown", name)
}

// Valid says whether elements can have this type.
func (t DType) Valid() bool { return t > 0 && int(t) < len(dtypes) && dtypes[t].name != "" }

// String is the name of the type in lower case.
func (t DType) String() string {
	if !t.Valid() {
		return "type " + strconv.Itoa(int(t))
	}
	return dtypes[t].name
}

// Bits is how many bits an element takes in memory; 0 if the type is not valid.
func (t DType) Bits() int {
	if !t.Valid() {
		return 0
	}
	return dtypes[t].bits
}

// Bytes is how many bytes count elements take. Elements smaller than a byte are packed, and the last
// byte may be filled in part.
func (t DType) Bytes(count int64) (int64, error) {
	switch bits := int64(t.Bits()); {
	case bits == 0:
		return 0, fmt.Errorf("elements of unknown %v", t)
	case count < 0:
		return 0, fmt.Errorf("%d elements of %v", count, t)
	case count > (math.MaxInt64-7)/bits:
		return 0, fmt.Errorf("%d elements of %v are more than memory can hold", count, t)
	default:
		return (count*bits + 7) / 8, nil
	}
}
