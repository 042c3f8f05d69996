package main

// equivalent are the random mutants that no test can or should find, by name,
// each with the reason. They are not counted.
var equivalent = map[string]string{}
