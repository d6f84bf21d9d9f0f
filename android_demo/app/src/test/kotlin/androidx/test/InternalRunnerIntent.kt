@file:Suppress("PackageDirectoryMismatch", "unused")

package androidx.test.internal.runner.intent

import android.content.Intent
import androidx.test.runner.intent.IntentCallback
import androidx.test.runner.intent.IntentMonitor

class IntentMonitorImpl : IntentMonitor {
    override fun addIntentCallback(callback: IntentCallback) = Unit
    override fun removeIntentCallback(callback: IntentCallback) = Unit
    fun signalIntent(@Suppress("UNUSED_PARAMETER") intent: Intent) = Unit
}
