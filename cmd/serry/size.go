package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A size is a number of bytes on the command line: 1073741824, 1GiB, 512MiB.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	for _, u := range sizeUnits {
		digits, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*s = size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("want bytes, such as 8GiB or 512MiB")
}

// String implements [pflag.Value].
func (s *size) String() string {
	for i := len(sizeUnits) - 2; i >= 0; i-- {
		if u := sizeUnits[i]; *s > 0 && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type implements [pflag.Value].
func (s *size) Type() string { return "size" }
