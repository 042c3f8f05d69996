//go:build race

package simulation

// slower is how many times as few histories are played with the race detector: it makes a history ten times as long.
const slower = 8
