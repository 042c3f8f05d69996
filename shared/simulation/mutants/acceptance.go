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
	{"a cleanup deletes a key with the tag that no run created", "infra/acceptance/cleanup.go",
		`	return isOfRun(stack, run), aws.ToTime`, `	return isOfRun(stack, run) || run != "", aws.ToTime`,
		inAcceptance},
	{"a cleanup deletes a stack without the tag of the run", "infra/acceptance/cleanup.go",
		`	if tagOf(found.Tags) != id {`, `	if false {`, inAcceptance},
	{"a cleanup leaves what a killed run denied", "infra/acceptance/cleanup.go",
		`	if err := removeDenials(ctx, t, stacks, name); err != nil {`,
		`	if err := error(nil); err != nil {`, inAcceptance},
	{"an alarm that was raised before is passed", "infra/acceptance/alarms.go",
		`return now[a] == cwtypes.StateValueAlarm })`, `return false })`, inAcceptance},
	{"an alarm that is not OK again is passed", "infra/acceptance/alarms.go",
		`					return now[alarm] == cwtypes.StateValueOk`, `					return now[alarm] != ""`,
		inAcceptance},
	{"an alarm is passed although its cause failed", "infra/acceptance/alarms.go",
		`	if c.start != nil {
		err = c.start(ctx)
	}`, `	if c.start != nil {
		c.start(ctx)
		times[c.alarms[0]] = time.Since(start)
	}`, inAcceptance},
	{"an alarm that nothing raises is left out", "infra/acceptance/alarms.go",
		`		r.rows[alarm] = row
	}
	rows := r.sorted()`, `		_ = row
	}
	rows := r.sorted()`, inAcceptance},
	{"a cause does not end", "infra/acceptance/alarms.go",
		`	if c.end != nil {`, `	if c.end != nil && err == nil {`, inAcceptance},
	{"a replay is passed that delivered events that nobody asked for", "infra/acceptance/replays.go",
		`		right && missing == 0 && others == 0, e, err`, `		right && missing == 0, e, err`, inAcceptance},
	{"a replay is passed that left events out", "infra/acceptance/replays.go",
		`		right && missing == 0 && others == 0, e, err`, `		right && others == 0, e, err`, inAcceptance},
	{"replayed events behind a rule that was not chosen are passed", "infra/acceptance/replays.go",
		`a.ReplayName == e.Name && a.Rule == e.rule && (`, `a.ReplayName == e.Name && (`, inAcceptance},
	{"the policy of the bus is passed without a replay", "infra/acceptance/replays.go",
		`denies > 0 && r.window != nil, nil`, `denies > 0, nil`, inAcceptance},
	{"an alarm that the emulator lacks is passed", "infra/acceptance/alarms.go",
		`Actual: "not shown", Status: NotShown, Reason: r.lacks[alarm]}`, `Actual: "shown", Status: Passed}`,
		inAcceptance},
	{"causes on the emulator disturb each other", "infra/acceptance/alarms.go",
		`		lanes = [][]cause{slices.Concat(lanes...)}
	}
	first`, `	}
	first`, inAcceptance},
	{"a chart that the emulator cannot show is wrong", "infra/acceptance/dashboard.go",
		`			return noOldKeys`, `			return ""`, inAcceptance},
	{"a metric without data is right", "infra/acceptance/dashboard.go",
		`			right = false
			reason`, `			reason`, inAcceptance},
	{"a chart without a result is right", "infra/acceptance/dashboard.go",
		`len(lines) > 0, err
}`, `true, err
}`, inAcceptance},
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
