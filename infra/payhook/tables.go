package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newLedger creates the table of events: one item per eventId, and a sparse index of the
// events that are pending or parked.
func (p *Payhook) newLedger() awsdynamodb.ITableV2 {
	conf := p.conf
	if conf.LedgerTable != "" {
		// The stack does not own it: the table is retained when the stack is deleted, and its
		// configuration is not changed.
		return awsdynamodb.TableV2_FromTableAttributes(p, jsii.String("Ledger"), &awsdynamodb.TableAttributesV2{
			TableName:     jsii.String(conf.LedgerTable),
			GlobalIndexes: jsii.Strings(settings.LedgerIndex),
		})
	}
	table := p.newTable("Ledger", &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(settings.LedgerKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(settings.LedgerTTL),
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:    jsii.String(settings.LedgerIndex),
			PartitionKey: attribute(settings.LedgerShard, awsdynamodb.AttributeType_STRING),
			SortKey:      attribute(settings.LedgerDue, awsdynamodb.AttributeType_NUMBER),
			// Redrive measures how long events have been pending, and leases as many as fit into
			// its memory, without reading them. So do people who list what is parked.
			ProjectionType:   awsdynamodb.ProjectionType_INCLUDE,
			NonKeyAttributes: jsii.Strings(settings.LedgerProjection()...),
		}},
		// A protected table cannot be deleted by any user or process (AWS, "AWS::DynamoDB::GlobalTable" in the
		// CloudFormation reference), including the rollback of a failed creation. If the rollback tried to delete it,
		// the rollback would fail. So the table is retained there as well: an empty table costs nothing, and its
		// generated name does not block a later attempt.
		DeletionProtection: jsii.Bool(!conf.Local),
		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN,
	})
	if conf.Local {
		table.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY)
	}
	return table
}

// newKeysTable creates the table in which all sandboxes of the webhook function share the
// service's public keys and the budget for fetching them.
//
// It is a cache. It is deleted with the stack, and the keys are fetched again.
func (p *Payhook) newKeysTable() awsdynamodb.ITableV2 {
	return p.newTable("Keys", &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(settings.KeysKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(settings.KeysTTL),
		RemovalPolicy:       awscdk.RemovalPolicy_DESTROY,
	})
}

// newTable creates a table with on-demand billing and point-in-time recovery for 35 days.
func (p *Payhook) newTable(id string, props *awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	props.Billing = awsdynamodb.Billing_OnDemand(nil)
	props.PointInTimeRecoverySpecification = &awsdynamodb.PointInTimeRecoverySpecification{
		PointInTimeRecoveryEnabled: jsii.Bool(true),
	}
	table := awsdynamodb.NewTableV2(p, jsii.String(id), props)
	if p.key != nil {
		// TableEncryptionV2_CustomerManagedKey needs a stack with a Region.
		resource := table.Node().DefaultChild().(awsdynamodb.CfnGlobalTable)
		resource.SetSseSpecification(&awsdynamodb.CfnGlobalTable_SSESpecificationProperty{
			SseEnabled: jsii.Bool(true), SseType: jsii.String("KMS")})
		// The CDK writes the replicas later.
		resource.AddPropertyOverride(jsii.String("Replicas.0.SSESpecification.KMSMasterKeyId"), p.key.KeyArn())
		p.stores(table)
	}
	return table
}

func attribute(name string, kind awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: kind}
}
