package transfer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
)

// maxDims is how many dimensions a value can have.
const maxDims = 32

// A Spec says what a buffer holds. The zero Spec is that of a token: it has no bytes, and only its definition matters.
type Spec struct {
	Type memory.DType
	Dims []int64

	// Layout says how the elements lie in memory, in the words of the device: the order of dimensions, tiles, padding.
	// Empty means densely, the last dimension fastest. Transfers do not change the layout: both sides have the same.
	Layout string

	// Size is how many bytes a value takes. It may be left out where Layout is empty.
	Size int64
}

// Equal says whether both say the same.
func (s Spec) Equal(o Spec) bool {
	return s.Type == o.Type && s.Layout == o.Layout && s.Size == o.Size && slices.Equal(s.Dims, o.Dims)
}

// clone is a copy that shares nothing.
func (s Spec) clone() Spec {
	s.Dims = slices.Clone(s.Dims)
	return s
}

// Token says whether the value has no bytes.
func (s Spec) Token() bool { return s.Type == 0 && len(s.Dims) == 0 }

// Bytes is how many bytes a value takes, as it is stored.
func (s Spec) Bytes() (int64, error) {
	if s.Token() {
		return 0, nil
	}
	count := int64(1)
	for _, d := range s.Dims {
		if d < 0 || d > 0 && count > math.MaxInt64/d {
			return 0, invalid("%v is no shape", s.Dims)
		}
		count *= d
	}
	dense, err := s.Type.Bytes(count)
	switch {
	case err != nil:
		return 0, invalid("%v", err)
	case len(s.Dims) > maxDims:
		return 0, invalid("%d dimensions, at most %d", len(s.Dims), maxDims)
	case s.Layout != "" && s.Size <= 0 && count > 0:
		return 0, invalid("layout %q needs the size of a value", s.Layout)
	case s.Layout == "" && s.Size != 0 && s.Size != dense:
		return 0, invalid("%v takes %d bytes, not %d", s, dense, s.Size)
	case s.Layout != "":
		return s.Size, nil
	}
	return dense, nil
}

// String is "f32[2,3]", followed by the layout if it is not dense.
func (s Spec) String() string {
	if s.Token() {
		return "token"
	}
	dims := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = strconv.FormatInt(d, 10)
	}
	text := fmt.Sprintf("%v[%s]", s.Type, strings.Join(dims, ","))
	if s.Layout != "" {
		text += fmt.Sprintf("{%s} of %d bytes", s.Layout, s.Size)
	}
	return text
}

// invalid is the error of a call that was refused before it did anything.
func invalid(format string, args ...any) error {
	return &serry.InvalidError{What: fmt.Sprintf(format, args...)}
}
