package lambdaruntime_test

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"payhook.example/shared/lambdaruntime"
)

func TestTheRuntimeFitsTheMemoryOfTheFunction(t *testing.T) {
	procs := runtime.GOMAXPROCS(3)
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	for name, c := range map[string]struct {
		env     map[string]string
		procs   int
		percent int
		limit   int64
	}{
		"not Lambda":      {nil, 3, 100, math.MaxInt64},
		"not a number":    {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "x"}, 3, 100, math.MaxInt64},
		"half a gigabyte": {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}, 1, 400, 384 << 20},
		"less than a CPU": {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1768"}, 1, 400, 1326 << 20},
		"one CPU":         {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1772"}, 3, 400, 1329 << 20},
		"set by somebody": {map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512", "GOMAXPROCS": "2",
			"GOGC": "50", "GOMEMLIMIT": "1GiB"}, 3, 100, math.MaxInt64},
	} {
		runtime.GOMAXPROCS(3)
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		lambdaruntime.Adapt(func(name string) string { return c.env[name] })
		if got := runtime.GOMAXPROCS(0); got != c.procs {
			t.Errorf("%s: GOMAXPROCS is %d, want %d", name, got, c.procs)
		}
		if got := debug.SetGCPercent(100); got != c.percent {
			t.Errorf("%s: GOGC is %d, want %d", name, got, c.percent)
		}
		if got := debug.SetMemoryLimit(-1); got != c.limit {
			t.Errorf("%s: GOMEMLIMIT is %d, want %d", name, got, c.limit)
		}
	}
}
