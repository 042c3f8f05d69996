package main

// archiveMutants are bugs in the archive of the published events, and in the command that
// replays them.
var archiveMutants = []mutant{
	{"archiveRetention has no effect", "infra/payhook/archive.go",
		`jsii.Number(conf.ArchiveRetention)`, `jsii.Number(30)`, inArchive},
	{"the archive cannot be left out", "infra/payhook/archive.go",
		`if conf.ArchiveRetention == 0 {`, `if conf.ArchiveRetention < 0 {`, inArchive},
	{"the archive has events of one detail-type only", "infra/payhook/archive.go",
		`map[string]any{"source": []string{conf.Webhook.EventSource}}`,
		`map[string]any{"source": []string{conf.Webhook.EventSource}, "detail-type": []string{"A"}}`, inArchive},
	{"the archives of two buses have one name", "infra/payhook/archive.go",
		`sha256.Sum256([]byte(name))`, `sha256.Sum256([]byte(name[:maxArchiveName]))`, inArchive},
	{"an output names an archive that the emulator does not have", "infra/payhook/archive.go",
		`if !conf.Local {`, `if conf.StackName != "" {`, inArchive},
	{"the archive is not encrypted with the customer managed key", "infra/payhook/encryption.go",
		`	"AWS::Events::Archive":       "KmsKeyIdentifier",
`, ``, inEncryption},
	{"EventBridge may not use the key for the archive", "infra/payhook/encryption.go",
		`	if conf.ArchiveRetention > 0 {`, `	if conf.ArchiveRetention < 0 {`, inEncryption},
	{"any archive of EventBridge may use the key", "infra/payhook/encryption.go",
		`conf), awscdk.ArnFormat_SLASH_RESOURCE_NAME),
			}}}))`, `conf)+"*", awscdk.ArnFormat_SLASH_RESOURCE_NAME),
			}}}))`, inEncryption},
	{"a replayed reference can be older than its event", "shared/settings/contradictions.go",
		` + d.ArchiveRetention
`, `
`, inSettings},
	{"a mark forgets the time of an event", "shared/ledger/mark.go",
		`		values[":eventTimestamp"] = onBus
`, `		values[":eventTimestamp"] = values[":now"]
		_ = onBus
`, inLedger},
	{"a mark of a batch forgets the time of an event", "shared/ledger/mark.go",
		`			statement, parameters = timed, append(parameters, onBus)`,
		`			statement, parameters = timed, append(parameters, now)
			_ = onBus`, inLedger},
	{"a mark keeps a time that is not on the bus", "shared/ledger/mark.go",
		`!t.Equal(time.Unix(0, t.UnixNano()))`, `t.Equal(time.Time{}.Add(1))`, inLedger},

	{"a replay starts without confirmation", replayRunFile, `if !o.yes {`, `if !o.yes && p.Terminal {`, inReplay},
	{"a replay delivers to all rules", replayPlanFile, `Arn: &d.busARN, FilterArns: arns}`,
		`Arn: &d.busARN, FilterArns: arns[:0]}`, inReplay},
	{"a replay needs no rule", replayPlanFile, `case !o.allRules && len(o.rules) == 0:`,
		`case !o.allRules && len(o.rules) == 0 && o.event == "":`, inReplay},
	{"a replay delivers to a disabled rule", replayPlanFile, `		case !isEnabled(delivers[i]):`,
		`		case !isEnabled(delivers[i]) && name == "":`, inReplay},
	{"a replay of all rules delivers to the rule of payhook listen", replayPlanFile,
		`strings.HasPrefix(aws.ToString(r.Name), listen.Prefix)`,
		`strings.HasPrefix(aws.ToString(r.Name), listen.Prefix+".")`, inReplay},
	{"a replay delivers to the rule that fills the archive", replayPlanFile,
		`return r.ManagedBy != nil || aws`, `return aws`, inReplay},
	{"a replay leaves out what is not in the archive yet", replayPlanFile, `	case o.to.After(latest):`,
		`	case o.to.After(now):`, inReplay},
	{"an event is replayed that is not in the archive yet", replayPlanFile,
		`item.PublishedAt.Add(ArchiveDelay)):`, `item.PublishedAt):`, inReplay},
	{"an event is replayed that was not published", replayPlanFile, `	case item.PublishedAt.IsZero():`,
		`	case item.PublishedAt.IsZero() && item.Pending:`, inReplay},
	{"a replay leaves out the last second", replayPlanFile, `o.to.Add(time.Second - 1).UTC()`, `o.to.UTC()`, inReplay},
	{"a replay of an event begins with the event", replayPlanFile, `made.from = at.Truncate(time.Minute)`,
		`made.from = at.Truncate(time.Second)`, inReplay},
	{"a replay without events is a success", replayRunFile,
		`!= types.ReplayStateCompleted || r.LastReplayed.IsZero()`, `!= types.ReplayStateCompleted`, inReplay},
	{"a replay that failed is a success", replayRunFile,
		`attention := types.ReplayState(r.State) != types.ReplayStateCompleted || `, `attention := `, inReplay},
	{"a replay of another archive is cancelled", replayRunFile,
		`if missing || aws.ToString(out.EventSourceArn) != d.archiveARN {`, `if missing {`, inReplay},
}

const (
	replayRunFile  = "infra/cmd/payhook/replay/run.go"
	replayPlanFile = "infra/cmd/payhook/replay/plan.go"
)

var (
	inReplay     = []string{"./infra/cmd/payhook/replay"}
	inArchive    = []string{"./infra/payhook -run Archive"}
	inEncryption = []string{"./infra/payhook -run AllStoredData|ThreeServices"}
)

func init() { mutants = append(mutants, archiveMutants...) }
