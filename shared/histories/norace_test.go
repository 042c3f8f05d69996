//go:build !race

package histories

const raceEnabled = false
