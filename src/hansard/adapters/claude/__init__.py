"""The Claude Agent SDK's session store on the Store. Start with `session_store`."""
