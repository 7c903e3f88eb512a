// Package host looks at the machine that a job is to run on: which accelerators it has, and what about
// it would make a job slow or fail. [Check] returns everything found as [Finding] values; it prints
// nothing. Every probe takes the directory where /proc, /sys and /dev are, which is "/" except in
// tests.
package host
