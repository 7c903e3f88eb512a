//go:build race

package storm_test

import "time"

// longIdle is shorter where every step costs ten times as much.
const longIdle = time.Hour
