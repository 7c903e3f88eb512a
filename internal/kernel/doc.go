// Package kernel reduces vectors of elements: dst = a + b + c, element by element, for every type that can be
// reduced and every kind of reduction.
//
// All of it is portable Go. For the common types and kinds there is assembly beside it, for processors of amd64 with AVX2
// (CL-KRN-1): internal/gen/avx2 writes it, and vector.go says when it is used. Both compute the same bits, but for those
// of a NaN (CL-KRN-3). To see this, tests compare them with each other.
//
// The rules that are not obvious:
//
//   - Integers wrap. Floats of 64 and 32 bits are reduced from left to right, without fused operations.
//   - Floats of 16 and 8 bits are widened to 32 bits, reduced, and rounded once, to the nearest and to even
//     (CL-RED-5). So one call with many inputs is more exact than many calls with two.
//   - The least and the greatest of numbers with a NaN among them is NaN (CL-RED-4).
//   - A sum of truth values is their "or", a product their "and": bytes stay 0 or 1 (CL-RED-2).
//   - Complex numbers have sums and products only (CL-RED-3).
//   - Integers of 4 bits lie two in a byte, the first one in the lower half.
//
// Start with [Reduce]. Read kernel.go first, then vector.go.
package kernel
