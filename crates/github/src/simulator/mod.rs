//! A GitHub whose state is known. So far: the git in it.

pub mod git;
