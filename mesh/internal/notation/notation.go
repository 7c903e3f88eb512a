// Package notation writes numbers and names the way the text forms of meshes do.
package notation

import (
	"strconv"
	"strings"
)

// Tuple prints sizes the way array people write a shape: (), (8,), (8, 2).
func Tuple(shape []int) string {
	if len(shape) == 1 {
		return "(" + strconv.Itoa(shape[0]) + ",)"
	}
	return "(" + Join(shape, ", ") + ")"
}

// Join writes numbers with a separator.
func Join[T ~int](list []T, sep string) string {
	return JoinFunc(list, sep, func(v T) string { return strconv.Itoa(int(v)) })
}

// JoinFunc writes elements with a separator.
func JoinFunc[T any](list []T, sep string, text func(T) string) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = text(v)
	}
	return strings.Join(parts, sep)
}

// Runs writes numbers as runs: (0:4, 9, 16:32:2).
func Runs[T ~int](list []T) string {
	var parts []string
	for i := 0; i < len(list); {
		n := RunLength(list[i:])
		if n < 3 {
			parts = append(parts, strconv.Itoa(int(list[i])))
			i++
			continue
		}
		first, step := int(list[i]), int(list[i+1]-list[i])
		text := strconv.Itoa(first) + ":" + strconv.Itoa(first+n*step)
		if step != 1 {
			text += ":" + strconv.Itoa(step)
		}
		parts = append(parts, text)
		i += n
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// RunLength counts how far the list goes up in equal steps.
func RunLength[T ~int](list []T) int {
	if len(list) < 2 || list[1] <= list[0] {
		return 1
	}
	n := 2
	for n < len(list) && list[n]-list[n-1] == list[1]-list[0] {
		n++
	}
	return n
}

// Repeats writes numbers with counts: (0*4, 1*4, 2).
func Repeats[T ~int](list []T) string {
	var parts []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		text := strconv.Itoa(int(list[i]))
		if n > 1 {
			text += "*" + strconv.Itoa(n)
		}
		parts = append(parts, text)
		i += n
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// Quote writes a name in single quotes.
func Quote(name string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name) + "'"
}

// QuoteAll writes names in single quotes, with commas.
func QuoteAll(names []string) string { return JoinFunc(names, ", ", Quote) }
