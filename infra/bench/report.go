package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// sample is one measurement: milliseconds until the answer, milliseconds of CPU time, calls of AWS and
// of the key service, connections to AWS, bytes of log, and the most memory so far in MiB.
type sample [6]float64

const took, cpu, calls, connections, logged, memory = 0, 1, 2, 3, 4, 5

// report has the samples of each program in each row.
type report map[[2]string][]sample

func (r report) add(row, program string, s sample) {
	r[[2]string{row, program}] = append(r[[2]string{row, program}], s)
}

// line returns the means of samples, except the median of the times and the most memory.
func (r report) line(row, program string) (l sample) {
	list := slices.Clone(r[[2]string{row, program}])
	slices.SortFunc(list, func(a, b sample) int { return int(1000 * (a[took] - b[took])) })
	for _, s := range list {
		for i := range l {
			l[i] += s[i]
		}
	}
	for i := range l {
		l[i] /= float64(len(list))
	}
	l[took] = list[(len(list)-1)/2][took]
	l[memory] = slices.MaxFunc(list, func(a, b sample) int { return int(1000 * (a[memory] - b[memory])) })[memory]
	return l
}

func (r report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tprogram\tp50 ms\tCPU ms\tcalls\tconnections\tlog bytes\tRSS MiB\t")
	for _, of := range slices.SortedFunc(maps.Keys(r), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		l := r.line(of[0], of[1])
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.2f\t%.1f\t%.1f\t%.0f\t%.1f\t\n", of[0], of[1],
			l[took], l[cpu], l[calls], l[connections], l[logged], l[memory])
	}
	_ = t.Flush()
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	ratio := func(name string, column int, row, other, program string) {
		fmt.Fprintf(t, "%s\t%.2f\n", name, r.line(row, webhook)[column]/r.line(other, program)[column])
	}
	const known, known100 = "first, key in the table, 1 event", "first, key in the table, 100 events"
	const later = "later, TLS"
	fmt.Fprintln(t)
	ratio("start / start of the empty function", took, "start", "start", empty)
	ratio("start over TLS / start of the empty function", took, "start, TLS", "start, TLS", empty)
	ratio("start over TLS / the same with all folders", took, "start, TLS", "start, TLS", allFolders)
	ratio("CPU, 1 event / empty function", cpu, "1 event", "1 event", empty)
	ratio("CPU, 5.8 MB / empty function", cpu, "5.8 MB, accepted", "5.8 MB, accepted", empty)
	ratio("CPU, 5.8 MB forged / empty function", cpu, "5.8 MB, forged", "5.8 MB, forged", empty)
	ratio("p50, 100 events / 1 event", took, "100 events", "1 event", webhook)
	ratio("p50, 1000 events / 1 event", took, "1000 events", "1 event", webhook)
	ratio("first invocation over TLS, key in the table / later p50", took, known, later, webhook)
	ratio("first invocation over TLS, new key / later p50", took, "first, new key, 1 event", later, webhook)
	ratio("first invocation over TLS, 100 events / 1 event", took, known100, known, webhook)
	return t.Flush()
}
