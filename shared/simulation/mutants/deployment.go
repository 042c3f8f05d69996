package main

// deploymentMutants are bugs in how a new version takes over, in what outlives a
// stack, and in what tells two stacks apart.
var deploymentMutants = []mutant{
	{"the URL is that of $LATEST", "infra/endpoint.go",
		`f.alias.AddFunctionUrl(`, `f.AddFunctionUrl(`, inInfra},
	{"the schedules run $LATEST", "infra/schedule.go",
		`Arn:              f.alias.FunctionArn(),`, `Arn:              f.FunctionArn(),`, inInfra},
	{"a replaced version is deleted", "infra/version.go",
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`RemovalPolicy: awscdk.RemovalPolicy_DESTROY`, inInfra},
	{"the version of a failed deployment stays", "infra/version.go",
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN`, inInfra},
	{"a failed creation leaves buckets, logs and secrets", "infra/stack.go",
		`	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`	return awscdk.RemovalPolicy_RETAIN`, inInfra},
	{"the rollback of a creation deletes a table that is protected", "infra/ledger.go",
		`		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN,`,
		`		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,`, inInfra},
	{"any stack is deleted without a question", "infra/stack.go",
		`jsii.Bool(!conf.Local),
`, `jsii.Bool(false),
`, inInfra},
	{"the topic's name is too long for SNS", "infra/alarms.go",
		`jsii.String(conf.StackName),
`, `jsii.String(conf.StackName + " alarms"),
`, inInfra},
	{"strangers can hold up a canary", "infra/version.go",
		`"not-stored", "parked"}`, `"not-stored", "parked", "unauthenticated"}`, inInfra},
	{"a new ledger beside the one that is named", "infra/ledger.go",
		`if conf.LedgerTable != "" {`, `if false {`, inInfra},
	{"two stacks share a bus", "shared/settings/settings.go",
		`{ return strings.ToLower(stackName) }`, `{ return "payhook" }`, inSettings},
	{"a function guesses the name of its bus", "shared/settings/settings.go",
		`			if v := getenv(s.Env()); v != "" {
				return v
			}
`, `			if v := getenv(s.Env()); v != "" {
				return v
			}
			if s == EventBusName {
				return "payhook"
			}
`, inSettings},
	{"a variable that the previous template lacks is required", "shared/settings/settings.go",
		`			if v := getenv(s.Env()); v != "" {
				return v
			}
			return s.Default
`, `			return getenv(s.Env())
`, inSettings},
}

var inInfra = []string{"./infra"}

func init() { mutants = append(mutants, deploymentMutants...) }
