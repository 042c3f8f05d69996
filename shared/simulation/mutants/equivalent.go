package main

// prefilter is the reason of mutants that make suspicious report more.
const prefilter = "suspicious only decides whether the exact check runs; if it reports too much, that costs time"

// equivalent are the random mutants that no test can or should find, by name,
// each with the reason. They are not counted.
var equivalent = map[string]string{
	"shared/bus/check.go suspicious: > is >=: depth > MaxDepth":              prefilter,
	"shared/bus/check.go suspicious: left side alone: '0' <= c && c <= '9'":  prefilter,
	"shared/bus/check.go suspicious: right side alone: '0' <= c && c <= '9'": prefilter,
	"shared/bus/check.go suspicious: && is ||: '0' <= c && c <= '9'":         prefilter,
	"shared/bus/check.go suspicious: always true: '0' <= c && c <= '9'":      prefilter,
}
