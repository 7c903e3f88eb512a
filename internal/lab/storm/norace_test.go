//go:build !race

package storm_test

import "time"

// longIdle is how long NEW-36 wants a job to be left in peace.
const longIdle = 10 * time.Hour
