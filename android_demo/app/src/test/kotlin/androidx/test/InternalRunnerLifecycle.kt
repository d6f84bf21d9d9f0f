@file:Suppress("PackageDirectoryMismatch", "unused")

package androidx.test.internal.runner.lifecycle

import android.app.Activity
import android.app.Application
import androidx.test.runner.lifecycle.ActivityLifecycleCallback
import androidx.test.runner.lifecycle.ActivityLifecycleMonitor
import androidx.test.runner.lifecycle.ApplicationLifecycleCallback
import androidx.test.runner.lifecycle.ApplicationLifecycleMonitor
import androidx.test.runner.lifecycle.ApplicationStage
import androidx.test.runner.lifecycle.Stage
import java.util.WeakHashMap
import java.util.concurrent.CopyOnWriteArrayList

class ActivityLifecycleMonitorImpl : ActivityLifecycleMonitor {
    private val callbacks = CopyOnWriteArrayList<ActivityLifecycleCallback>()
    private val stages = WeakHashMap<Activity, Stage>()

    override fun addLifecycleCallback(callback: ActivityLifecycleCallback) {
        callbacks.addIfAbsent(callback)
    }

    override fun removeLifecycleCallback(callback: ActivityLifecycleCallback) {
        callbacks.remove(callback)
    }

    @Synchronized
    override fun getLifecycleStageOf(activity: Activity): Stage = stages[activity] ?: Stage.PRE_ON_CREATE

    @Synchronized
    override fun getActivitiesInStage(stage: Stage): Collection<Activity> = stages.filterValues { it == stage }.keys

    fun signalLifecycleChange(stage: Stage, activity: Activity) {
        synchronized(this) { stages[activity] = stage }
        callbacks.forEach { it.onActivityLifecycleChanged(activity, stage) }
    }
}

class ApplicationLifecycleMonitorImpl : ApplicationLifecycleMonitor {
    private val callbacks = CopyOnWriteArrayList<ApplicationLifecycleCallback>()

    override fun addLifecycleCallback(callback: ApplicationLifecycleCallback) {
        callbacks.addIfAbsent(callback)
    }

    override fun removeLifecycleCallback(callback: ApplicationLifecycleCallback) {
        callbacks.remove(callback)
    }

    fun signalLifecycleChange(application: Application, stage: ApplicationStage) =
        callbacks.forEach { it.onApplicationLifecycleChanged(application, stage) }
}
