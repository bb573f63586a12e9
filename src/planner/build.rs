//! build.

use super::{PlanError, StepSpec};
use crate::plan::Plan;

pub(super) fn plan_step(_spec: &StepSpec) -> Result<Plan, PlanError> {
    unimplemented!()
}
