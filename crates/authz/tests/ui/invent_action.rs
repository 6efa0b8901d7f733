//! The set of actions is closed.

use merkwelt_authz::{Action, ActionName, class};

enum ReadEverything {}

impl Action for ReadEverything {
    type Class = class::Read;
    const NAME: ActionName = ActionName::Recall;
    const NEEDS_SUBJECT: bool = false;
}

fn main() {}
