package main

// deploymentMutants are bugs in how a new version takes over, in what outlives a
// stack, and in what tells two stacks apart.
var deploymentMutants = []mutant{
	{"the function URL points to $LATEST", "infra/payhook/endpoint.go",
		`f.alias.AddFunctionUrl(`, `f.AddFunctionUrl(`, inInfra},
	{"the schedules invoke $LATEST", "infra/payhook/schedule.go",
		`Arn:              f.alias.FunctionArn(),`, `Arn:              f.FunctionArn(),`, inInfra},
	{"a replaced version of a function is deleted", "infra/payhook/version.go",
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`RemovalPolicy: awscdk.RemovalPolicy_DESTROY`, inInfra},
	{"the function version of a failed deployment stays", "infra/payhook/version.go",
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`RemovalPolicy: awscdk.RemovalPolicy_RETAIN`, inInfra},
	{"a failed creation leaves buckets, log groups and secrets", "infra/payhook/stack.go",
		`	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE`,
		`	return awscdk.RemovalPolicy_RETAIN`, inInfra},
	{"the rollback of a creation deletes a protected table", "infra/payhook/ledger.go",
		`		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN,`,
		`		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE,`, inInfra},
	{"a stack is deleted without confirmation", "infra/payhook/stack.go",
		`jsii.Bool(!conf.Local),
`, `jsii.Bool(false),
`, inInfra},
	{"the topic's name is too long for SNS", "infra/payhook/alarms.go",
		`jsii.String(conf.StackName),
`, `jsii.String(conf.StackName + " alarms"),
`, inInfra},
	{"rejected webhooks can roll back a deployment", "infra/payhook/version.go",
		`"not-stored", "parked"}`, `"not-stored", "parked", "unauthenticated"}`, inInfra},
	{"a stack with an existing ledger creates a new one", "infra/payhook/ledger.go",
		`if conf.LedgerTable != "" {`, `if false {`, inInfra},
	{"two stacks use the same bus name", "shared/settings/settings.go",
		`{ return strings.ToLower(stackName) }`, `{ return "payhook" }`, inSettings},
	{"a function has a default name for its bus", "shared/settings/settings.go",
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
	{"an unset environment variable does not have its default", "shared/settings/settings.go",
		`			if v := getenv(s.Env()); v != "" {
				return v
			}
			return s.Default
`, `			return getenv(s.Env())
`, inSettings},
}

var inInfra = []string{"./infra/payhook"}

func init() { mutants = append(mutants, deploymentMutants...) }
