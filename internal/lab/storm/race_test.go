//go:build race

package storm_test

import "time"

// longIdle is shorter where every step costs ten times as much.
const longIdle = time.Hour

// someCliques is how many schedules of cliques are played unless a flag says otherwise.
const someCliques = 40
