package main

// acceptanceMutants are bugs with which payhook acceptance would remove what is not its
// own, or claim what it has not shown, and with which the simulated service would accept
// forged tokens.
var acceptanceMutants = []mutant{
	{"a cleanup removes what has the tag only", "infra/acceptance/cleanup.go",
		`	return runID.MatchString(id) && (name == own || strings.HasPrefix(name, own+"-"))`,
		`	return runID.MatchString(id) && own+name != ""`, inAcceptance},
	{"a cleanup removes what another run has deployed", "infra/acceptance/cleanup.go",
		`(name == own || strings.HasPrefix(name, own+"-"))`, `strings.HasPrefix(name, own)`, inAcceptance},
	{"what a target lacks is passed", "infra/acceptance/rows.go",
		`row.Reason = lacks[need]; row.Reason != "" {`, `row.Reason = lacks[need]; false {`, inAcceptance},
	{"an error with the right result is passed", "infra/acceptance/rows.go",
		`	case err != nil:
		row.Actual`, `	case false:
		row.Actual`, inAcceptance},
	{"a run that shows nothing is right", "infra/acceptance/report.go",
		` && r.Counts[Passed] > 0`, ``, inAcceptance},
	{"a run that failed is right", "infra/acceptance/report.go",
		`r.Right = err == nil && `, `r.Right = `, inAcceptance},
	{"any token with an expiry is accepted", "shared/paymenttest/stateless.go",
		`	if !hmac.Equal([]byte(mac), []byte(macOf(key, text))) {`,
		`	if len(mac) > 1000 {`, inPaymentTest},
	{"a fault needs no secret", "shared/paymenttest/stateless.go",
		`[]byte(s.FaultSecret)) != 1 {`, `[]byte(s.FaultSecret)) > 1 {`, inPaymentTest},
}

var (
	inAcceptance  = []string{"./infra/acceptance"}
	inPaymentTest = []string{"./shared/paymenttest"}
)

func init() { mutants = append(mutants, acceptanceMutants...) }
