package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook/shared/contract"
)

// newLedger makes the table that knows every event: one item per eventId, and a
// sparse index of what is not published yet.
func newLedger(scope constructs.Construct, settings contract.Deployment) awsdynamodb.TableV2 {
	return newTable(scope, "Ledger", settings, &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(contract.LedgerKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(contract.LedgerTTL),
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:      jsii.String(contract.LedgerPendingIndex),
			PartitionKey:   attribute(contract.LedgerPendingShard, awsdynamodb.AttributeType_NUMBER),
			SortKey:        attribute(contract.LedgerPendingDue, awsdynamodb.AttributeType_NUMBER),
			ProjectionType: awsdynamodb.ProjectionType_KEYS_ONLY,
		}},
	})
}

// newTable makes a table that is billed by use, can be restored to any second of
// the last 35 days, and outlives the stack unless it is a local one.
func newTable(scope constructs.Construct, id string, settings contract.Deployment, props *awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	props.Billing = awsdynamodb.Billing_OnDemand(nil)
	props.PointInTimeRecoverySpecification = &awsdynamodb.PointInTimeRecoverySpecification{
		PointInTimeRecoveryEnabled: jsii.Bool(true),
	}
	props.DeletionProtection = jsii.Bool(!settings.Local)
	props.RemovalPolicy = keptUnlessLocal(settings)
	return awsdynamodb.NewTableV2(scope, jsii.String(id), props)
}

func attribute(name string, kind awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: kind}
}
